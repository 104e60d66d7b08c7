/** The page, built and served, in a real browser. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { build, preview } from "vite";

/** The exports of tools/chromium.mjs: JavaScript, because tools run without a loader. */
interface ChromiumTool {
  findChromium(): string | undefined;
  readonly noChromium: string;
  readonly chromiumFlags: readonly string[];
}

const chromiumTool = new URL("../../tools/chromium.mjs", import.meta.url).href;
const configFile = fileURLToPath(new URL("../../web/vite.config.ts", import.meta.url));

/** A browser, and the static build on a port of this machine. */
export interface Site {
  readonly browser: Browser;
  readonly address: string;
  /** Where the built files lie. */
  readonly folder: string;
  close(): Promise<void>;
}

/** Builds the page into a folder of its own and opens a browser; fails where there is no Chromium. */
export async function openSite(): Promise<Site> {
  const { findChromium, noChromium, chromiumFlags }: ChromiumTool = await import(chromiumTool);
  const executablePath = findChromium();
  if (executablePath === undefined) throw new Error(noChromium);
  const folder = mkdtempSync(join(tmpdir(), "twinccl-web-"));
  const outDir = join(folder, "page");
  await build({ configFile, logLevel: "warn", build: { outDir, emptyOutDir: true } });
  const server = await preview({
    configFile,
    logLevel: "warn",
    build: { outDir },
    preview: { port: 0, host: "127.0.0.1" },
  });
  const browser = await chromium.launch({ executablePath, args: [...chromiumFlags] });
  return {
    browser,
    address: server.resolvedUrls?.local[0] ?? "",
    folder: outDir,
    close: async () => {
      await browser.close();
      await server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A page that was opened, with everything that it complained about. */
export interface Opened {
  readonly page: Page;
  readonly complaints: string[];
}

/** Settings of a page. */
export interface PageOptions extends BrowserContextOptions {
  /** The page finds WebGPU, which takes seconds a page in software; else it runs on the other executors. */
  readonly hasWebGpu?: boolean;
}

const hideWebGpu =
  'Object.defineProperty(Object.getPrototypeOf(navigator), "gpu", { get: () => undefined })';

/** Opens the page with a query, and waits until every executor has run. */
export async function openPage(
  { browser, address }: Site,
  query: string,
  { hasWebGpu = false, ...options }: PageOptions = {},
): Promise<Opened> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  if (!hasWebGpu) await page.addInitScript({ content: hideWebGpu });
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  await page.goto(`${address}${query === "" ? "" : `?${query}`}`);
  await ran(page);
  return { page, complaints };
}

/** Waits until the call that the page shows has run on every executor. */
export async function ran(page: Page): Promise<void> {
  await page.locator("html[data-ran]:not([data-ran=running])").waitFor({ timeout: 60_000 });
}

/** Gives the page another screen, and lets it draw. */
export async function resize(page: Page, size: { width: number; height: number }): Promise<void> {
  await page.setViewportSize(size);
  await page.evaluate(
    "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))",
  );
}

/** The text of an element. */
export async function text(page: Page, selector: string): Promise<string> {
  return (await page.locator(selector).innerText()).trim();
}

/** The settings in the page's own address; `page.url()` follows later. */
export async function addressed(page: Page): Promise<string> {
  return page.evaluate<string>("location.search");
}

/** Virtual picoseconds that the page stands at. */
export async function timeOf(page: Page): Promise<number> {
  return Number(await page.inputValue("#scrubber"));
}

/** Plays slowly from the beginning, however little of the film is left by now; resolves once it has moved. */
export async function playSlowly(page: Page): Promise<void> {
  await page.locator("#speed").selectOption("0.25");
  // The scrubber pauses the film.
  await page.locator("#scrubber").fill("0");
  await page.locator("#play").click();
  await page.waitForFunction(`Number(document.getElementById("scrubber").value) > 0`);
}
