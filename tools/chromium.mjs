// Where Chromium lies on this machine, and what it is started with so that it has WebGPU without a GPU.

import { existsSync } from "node:fs";

const usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Path of the program, or `undefined`; TWINCCL_CHROMIUM names another one. */
export function findChromium() {
  const named = process.env.TWINCCL_CHROMIUM;
  return [named, ...usual].find((path) => path !== undefined && existsSync(path));
}

/** The message where there is none. */
export const noChromium = `no Chromium: looked for TWINCCL_CHROMIUM, ${usual.join(", ")}; install Debian's package chromium`;

/** SwiftShader, which Chromium brings along, as the GPU; root cannot have the sandbox. */
export const chromiumFlags = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
];
