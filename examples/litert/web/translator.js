// Text in, translation out, with the three files of an export for LiteRT: SentencePiece and the
// model run in WebAssembly, the beam search here.
//
// W is the beam width, C the columns of the cache, V the vocabulary. Shapes and signatures are
// those of tf_transformer/litert/file.py; the search is that of tf_transformer/litert/search.py
// for one sentence, without slots and prefixes.
import { loadAndCompile, loadLiteRt, Tensor } from "@litertjs/core";
import { SentencePieceProcessor } from "@sctg/sentencepiece-js";

const PAD = 0, BOS = 2, EOS = 3;

export class Translator {
  /** Loads model.tflite, tokenizer.model and model_card.json from the address `folder`. */
  static async load(folder) {
    const get = async (name) => {
      const response = await fetch(`${folder}/${name}`);
      if (!response.ok) throw new Error(`cannot fetch ${folder}/${name}: ${response.status}`);
      return response;
    };
    const bytes = async (name) => new Uint8Array(await (await get(name)).arrayBuffer());
    const self = new Translator();
    self.card = await (await get("model_card.json")).json();
    const { slots, separate_vocabularies: two } = self.card.config.data;
    if (slots) throw new Error("this page runs no model with data.slots");
    const tokenizer = async (name) => {
      const model = new SentencePieceProcessor();
      await model._loadModel(await bytes(name)); // its `load` takes no address
      return model;
    };
    self.reader = await tokenizer("tokenizer.model");
    self.writer = two ? await tokenizer("tokenizer.target.model") : self.reader;
    await loadLiteRt(".");
    self.model = await loadAndCompile(await bytes("model.tflite"), { accelerator: "wasm" });
    const inputs = self.model.signatures.step.getInputDetails();
    self.shapes = Object.fromEntries(inputs.map(({ name, shape }) => [name, [...shape]]));
    if (inputs.some(({ shape }) => shape.some((size) => size < 1)))
      throw new Error("the model's sizes vary: export it with --fixed-length");
    return self;
  }

  /**
   * Returns the translation of a text as {text, score, tokens, source, cut, long}: its score, the
   * numbers of tokens in both, whether the source was cut, and whether it is longer than any in
   * training.
   */
  async translate(text) {
    if (/^[\p{Z}\p{Cc}\p{Cf}]*$/u.test(text)) return { text: "", score: 0, tokens: 0, source: 0 };
    const { sizes, decoding, longest_source: trained, tag } = this.card;
    const ids = this.reader.encodeIds((tag ? `${tag} ` : "") + text.toWellFormed());
    const cut = ids.length >= sizes.max_source_tokens;
    const source = [...ids.slice(0, sizes.max_source_tokens - 1), EOS];
    const most = Math.min(decoding.max_length || Infinity, sizes.max_target_tokens);
    const longest = Math.min(source.length + decoding.max_extra_length, most);
    const shortest = Math.max(Math.min(source.length, 2), decoding.min_length);
    const memory = await this.encode(source);
    try {
      const step = this.step(memory);
      const best = await beamSearch(step, decoding, this.shapes.tokens[1], longest, shortest);
      const words = this.writer.decodeIds(best.tokens.filter((token) => token !== EOS));
      const long = !cut && source.length > (trained ?? Infinity);
      const counts = { tokens: best.tokens.length, source: source.length };
      return { text: words, score: best.score, ...counts, cut, long };
    } finally {
      Object.values(memory).forEach((tensor) => tensor.delete());
    }
  }

  /** Returns the inputs of "step" that stay the same for a source; the caller deletes them. */
  async encode(source) {
    const length = this.shapes.memory_mask[3];
    const padded = Int32Array.from({ length }, (_, i) => source[i] ?? PAD);
    const input = new Tensor(padded, [1, length]);
    const memory = await this.model.run("encode", { source: input });
    input.delete();
    const mask = padded.map((id) => id !== PAD);
    return { ...memory, memory_mask: new Tensor(mask, this.shapes.memory_mask) };
  }

  /** Returns a decoding step with its cache: (tokens, position, histories) -> W arrays of V. */
  step(memory) {
    const [, width, slots] = this.shapes.ancestry, columns = slots - 1;
    const past = {};
    for (const name of ["past_keys", "past_values"])
      past[name] = new Float32Array(this.shapes[name].reduce((a, b) => a * b));
    return async (tokens, position, histories) => {
      const ancestry = new Int32Array(width * slots).fill(-1);
      histories.forEach((history, beam) => {
        const kept = Math.max(position - columns, 0); // with an attention window, the last ones
        for (let i = kept; i < position; i++) ancestry[beam * slots + (i % columns)] = history[i];
        ancestry[beam * slots + columns] = beam;
      });
      const arrays = { ancestry, ...past };
      arrays.tokens = Int32Array.from(tokens);
      arrays.position = Int32Array.of(position);
      const inputs = { ...memory };
      for (const name in arrays) inputs[name] = new Tensor(arrays[name], this.shapes[name]);
      const outputs = await this.model.run("step", inputs);
      const found = {};
      for (const name in outputs) found[name] = outputs[name].toTypedArray();
      for (const name in arrays) inputs[name].delete();
      for (const name in outputs) outputs[name].delete();
      for (const name in past) {
        const fresh = split(found[name.replace("past_", "")], width * this.shapes[name][4]);
        fresh.forEach((rows, head) => {
          past[name].set(rows, (head * columns + (position % columns)) * rows.length);
        });
      }
      return split(found.logits, found.logits.length / width);
    };
  }
}

/** Cuts an array into parts of a size. */
function split(array, size) {
  const parts = [];
  for (let i = 0; i < array.length; i += size) parts.push(array.subarray(i, i + size));
  return parts;
}

/** Returns the hypothesis with the best log-probability / ((5 + length) / 6) ** alpha. */
async function beamSearch(step, decoding, width, longest, shortest) {
  const { alpha, lookahead, no_repeat_ngram: ngram } = decoding;
  const penalty = (length) => ((5 + length) / 6) ** alpha;
  // A beam's history has the slots in which its steps were computed. At first only one is alive.
  const dead = { tokens: [], history: [], logProb: -Infinity };
  let beams = [{ ...dead, logProb: 0 }, ...Array(width - 1).fill(dead)];
  let best = { tokens: [], score: -Infinity };
  for (let position = 0; ; position++) {
    const last = beams.map(({ tokens }) => tokens.at(-1) ?? BOS);
    const rows = await step(last, position, beams.map(({ history }) => history));
    const length = position + 1, count = width > 1 ? 2 * width : 1;
    const candidates = rows.flatMap((logits, slot) => {
      const { tokens, history, logProb } = beams[slot];
      if (logProb === -Infinity) return [];
      const normaliser = logSumExp(logits);
      const banned = new Set([PAD, BOS, ...(ngram ? repeating(tokens, ngram) : [])]);
      if (length < shortest) banned.add(EOS);
      const allowed = length >= longest ? [EOS] : largest(logits, count, banned);
      return allowed.map((token) => ({
        tokens: [...tokens, token],
        history: [...history, slot],
        logProb: logProb + logits[token] - normaliser,
      }));
    });
    candidates.sort((a, b) => b.logProb - a.logProb); // stable: earlier beams win ties
    candidates.length = Math.min(candidates.length, count);
    const ends = ({ tokens }) => tokens.at(-1) === EOS;
    for (const { tokens, logProb } of candidates.filter(ends)) {
      const score = logProb / penalty(length);
      if (score > best.score) best = { tokens, score };
    }
    const alive = candidates.filter((candidate) => !ends(candidate)).slice(0, width);
    const limit = lookahead ? Math.min(longest, length + lookahead) : longest;
    // A log-probability only falls, and the penalty is largest at the limit.
    if (!alive.length || best.score >= alive[0].logProb / penalty(limit)) return best;
    beams = [...alive, ...Array(width - alive.length).fill(dead)];
  }
}

function logSumExp(logits) {
  const highest = logits.reduce((a, b) => Math.max(a, b));
  return highest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
}

/** Returns the indices of the `count` largest values that are not banned, largest first. */
function largest(values, count, banned) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (found.length === count && values[i] <= values[found[count - 1]]) continue;
    if (banned.has(i)) continue;
    let at = Math.min(found.length, count - 1);
    for (; at > 0 && values[found[at - 1]] < values[i]; at--) found[at] = found[at - 1];
    found[at] = i;
  }
  return found;
}

/** Returns the tokens that would repeat an n-gram of `size`. */
function repeating(tokens, size) {
  const last = tokens.slice(tokens.length - size + 1);
  const repeats = (i) => last.every((token, j) => tokens[i - size + 1 + j] === token);
  return tokens.filter((_, i) => i >= size - 1 && repeats(i));
}
