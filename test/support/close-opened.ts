/** Runs for every file of tests, also of a worker that has loaded the modules of support before. */
import { afterEach } from "vitest";
import { closeOpened } from "./opened.ts";

// Each set of the library's modules in this process listens for its end.
process.setMaxListeners(0);

afterEach(closeOpened);
