/** The page: bundled from src for browsers, with nothing of Node in it. */
import { fileURLToPath } from "node:url";
import { defineConfig, type UserConfig } from "vite";
import { sourceEntries } from "../tools/source-entries.ts";

/** A page that is isolated from others may share memory, so that several threads can fold. */
const headers = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

const config: UserConfig = defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  // The build can lie in any folder of any server.
  base: "./",
  resolve: { alias: sourceEntries },
  // Browsers have WebGPU themselves; the package that brings it to Node is never loaded where they do.
  optimizeDeps: { exclude: ["webgpu"] },
  build: {
    outDir: "../web-dist",
    emptyOutDir: true,
    target: "es2022",
    // The page needs nearly all of the package at once: a division into chunks saves nothing.
    chunkSizeWarningLimit: 1000,
    rolldownOptions: { external: ["webgpu"] },
  },
  server: { headers },
  preview: { headers },
});

export default config;
