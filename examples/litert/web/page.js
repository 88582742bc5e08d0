import { Translator } from "./translator.js";

const [form, area, button, output, status] = ["form", "textarea", "button", "output", "p"].map(
  (name) => document.querySelector(name),
);

function fail({ message }) {
  status.textContent = `error: ${message}`;
}

/** Translates the lines of a text one after the other and shows each as it comes. */
async function translate(translator, text) {
  const lines = text.split("\n"), found = [], notes = [];
  const begin = performance.now();
  for (const [index, line] of lines.entries()) {
    const one = await translator.translate(line);
    found.push(one);
    if (one.cut) notes.push(`line ${index + 1}: cut at ${one.source} tokens`);
    if (one.long) notes.push(`line ${index + 1}: longer than any in training`);
    output.textContent = found.map((each) => each.text).join("\n");
    await new Promise((resolve) => setTimeout(resolve)); // lets the page show it
  }
  const seconds = (performance.now() - begin) / 1000;
  const tokens = found.reduce((sum, each) => sum + each.tokens, 0);
  const rate = Math.round(tokens / seconds);
  const speed = `${tokens} tokens in ${seconds.toFixed(2)} s, ${rate} a second`;
  status.textContent = [speed, ...notes].join("; ");
}

try {
  const begin = performance.now();
  const translator = await Translator.load("model");
  const seconds = ((performance.now() - begin) / 1000).toFixed(2);
  status.textContent = `loaded in ${seconds} s; the text stays in this browser`;
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    await translate(translator, area.value).catch(fail);
    button.disabled = false;
  };
  button.disabled = false;
} catch (error) {
  fail(error);
}
