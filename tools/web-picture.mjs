// Takes the picture of the page in the README: the static build in headless Chromium, in the middle of a call.
//
// `npm run web:picture` writes docs/pictures/playground.png; the same page gives the same picture.

import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { build, preview } from "vite";
import { chromiumFlags, findChromium, noChromium } from "./chromium.mjs";
import { options } from "./options.mjs";

options({ name: "web:picture", about: "Writes docs/pictures/playground.png.", options: {} });

const executablePath = findChromium();
if (executablePath === undefined) throw new Error(noChromium);

const query = "element=5000&rank=2&time=3300000";
const picture = fileURLToPath(new URL("../docs/pictures/playground.png", import.meta.url));
const configFile = fileURLToPath(new URL("../web/vite.config.ts", import.meta.url));

await build({ configFile, logLevel: "warn" });
const server = await preview({ configFile, logLevel: "warn", preview: { port: 0 } });
const browser = await chromium.launch({ executablePath, args: chromiumFlags });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1180 } });
  await page.goto(`${server.resolvedUrls.local[0]}?${query}`);
  await page.locator("html[data-ran]:not([data-ran=running])").waitFor({ timeout: 60_000 });
  mkdirSync(dirname(picture), { recursive: true });
  await page.screenshot({ path: picture });
  process.stdout.write(`${picture}\n`);
} finally {
  await browser.close();
  await server.close();
}
