/** Outputs as files hold them: hashes and hexadecimal bytes, one for all ranks or one for each. */
import { createHash } from "node:crypto";
import { bytesOfView } from "../api/bits.ts";
import type { HostArray } from "../api/index.ts";
import type { GoldenCase } from "./case.ts";

/** Outputs of one call by rank. */
export type Outputs = readonly (HostArray | undefined)[];

/** Hash of each rank's output; equal outputs are hashed once. */
export function hashesOf(outputs: Outputs): (string | undefined)[] {
  let known: HostArray | undefined;
  let hash = "";
  return outputs.map((output) => {
    if (output === undefined) return undefined;
    if (known === undefined || Buffer.compare(bytesOfView(known), bytesOfView(output)) !== 0) {
      known = output;
      hash = createHash("sha256").update(bytesOfView(output)).digest("hex").slice(0, 16);
    }
    return hash;
  });
}

/** The output of a rank that a file requires; `undefined` where it has no output. */
export function wantedOf(
  { collective, root }: GoldenCase,
  recorded: string | readonly string[],
  rank: number,
): string | undefined {
  if (collective === "reduce" && rank !== root) return undefined;
  return typeof recorded === "string" ? recorded : recorded[rank];
}

/** The texts of a file by rank: a list for a reduce-scatter, else the one that all ranks with an output share. */
export function shared(
  { collective }: GoldenCase,
  texts: readonly (string | undefined)[],
): string | readonly string[] {
  const there = texts.filter((text) => text !== undefined);
  return collective === "reduceScatter" ? there : (there[0] ?? "");
}

/** All bytes in hexadecimal. */
export function hexOf(output: HostArray): string {
  return Buffer.from(bytesOfView(output)).toString("hex");
}
