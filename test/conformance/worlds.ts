/** The suite on worlds of one process. */
import { type ConformanceOptions, conformance } from "twinccl/testing";
import { afterAll } from "vitest";
import { OpenWorlds } from "../support/open-worlds.ts";
import { testAll } from "./suite.ts";

/** A backend with all ranks in one process. */
export interface WorldCandidate extends ConformanceOptions {
  readonly name: string;
  /** One world of each size for all tests that leave theirs well, where opening takes long. */
  readonly keepsWorlds?: boolean;
}

/** Runs every test on one backend. */
export function worldsConform({ name, keepsWorlds = false, ...options }: WorldCandidate): void {
  const kept = new OpenWorlds(options.backend);
  afterAll(() => kept.close());
  const use: ConformanceOptions["use"] = (size, use) => kept.use(size, use);
  testAll(name, conformance({ ...options, ...(keepsWorlds && { use }) }));
}
