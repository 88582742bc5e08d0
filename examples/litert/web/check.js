// The page in a headless Chromium: translates the lines of stdin to stdout, and says on stderr how
// fast. `node check.js picture.png < in.en > out.de` also takes a picture of it.
import { createReadStream } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { chromium } from "playwright-core";

const types = { html: "text/html", js: "text/javascript", wasm: "application/wasm" };
const server = createServer(({ url }, response) => {
  const name = url === "/" ? "/index.html" : url;
  const file = createReadStream(`build${name}`);
  const type = types[name.split(".").at(-1)] ?? "application/octet-stream";
  file.on("open", () => response.setHeader("Content-Type", type));
  file.on("error", () => response.writeHead(404).end());
  file.pipe(response);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 900, height: 600 } });
page.on("pageerror", (error) => console.error(String(error)));
const status = page.locator("p");
await page.goto(`http://127.0.0.1:${server.address().port}/`);
const reached = (pattern) => status.filter({ hasText: pattern }).waitFor({ timeout: 600_000 });
await reached(/^(loaded|error)/);
console.error(await status.innerText());
if (await page.getByRole("button").isEnabled()) {
  await page.getByRole("textbox").fill((await text(process.stdin)).replace(/\n$/, ""));
  const devTools = await page.context().newCDPSession(page);
  await devTools.send("Performance.enable");
  const processTime = async () => {
    const { metrics } = await devTools.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "ProcessTime").value;
  };
  const before = await processTime();
  await page.getByRole("button").click();
  await reached(/^(\d+ tokens|error)/);
  console.error(`${await status.innerText()}; ${((await processTime()) - before).toFixed(2)} CPU s`);
  console.log(await page.locator("output").textContent());
  if (process.argv[2]) await page.screenshot({ path: process.argv[2] });
} else process.exitCode = 1;
await browser.close();
server.close();
