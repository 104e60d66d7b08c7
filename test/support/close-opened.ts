/** Runs for every file of tests, also of a worker that has loaded the modules of support before. */
import { afterEach } from "vitest";
import { closeOpened } from "./opened.ts";

afterEach(closeOpened);
