/** The page: bundled from src for browsers, with nothing of Node in it. */
import { fileURLToPath } from "node:url";
import { defineConfig, type UserConfig } from "vite";
import { sourceEntries } from "../tools/source-entries.ts";

const config: UserConfig = defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  // The build can lie in any folder of any server.
  base: "./",
  resolve: { alias: sourceEntries },
  build: { outDir: "../web-dist", emptyOutDir: true, target: "es2022" },
  server: { open: false },
});

export default config;
