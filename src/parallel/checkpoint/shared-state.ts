/** State that all ranks share: listed as the manifest has it, and compared before it is saved. */
import type { Communicator } from "../../api/index.ts";
import { assertSameOnRanks } from "../agreement.ts";
import { type Manifest, sha256Of } from "./manifest.ts";
import type { States } from "./rank-file.ts";
import { byName } from "./states-of.ts";

/** Bytes that are hashed at once: in several threads, and within what Node hashes, which is less than 2 GiB. */
const PIECE_BYTES = 2 ** 24;

/** The shared parts as lines of the manifest. */
export function sharedParts(shared: States): Manifest["shared"] {
  return Object.entries(shared).map(([part, { values, tensors }]) => {
    const entries = byName(Object.entries(tensors));
    return [
      part,
      { values, tensors: entries.map(([name, { dtype, shape }]) => [name, { dtype, shape }]) },
    ];
  });
}

/** Refuses to save what ranks do not share. All checksums are begun at once, of the tensors as they are now. */
export async function assertShared(
  comm: Communicator,
  step: number,
  shared: States,
  perRank: readonly string[],
): Promise<void> {
  const lines = new Map<string, string>([["step", String(step)]]);
  for (const part of perRank) lines.set(`perRank ${part}`, "present");
  const digests: Promise<void>[] = [];
  for (const [part, { values, tensors }] of Object.entries(shared)) {
    lines.set(`${part}: values`, JSON.stringify(values));
    for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const take = (sha256: string): void => {
        lines.set(`${part}/${name}`, `${dtype} [${shape.join(", ")}] ${sha256}`);
      };
      digests.push(fingerprint(bytes).then(take));
    }
  }
  await Promise.all(digests);
  await assertSameOnRanks(comm, {
    action: "save",
    kind: "shared state",
    lines,
    hint: "ranks have gone apart: what differs belongs to perRank, or the run is wrong",
  });
}

/** The checksum of a tensor, of its pieces' checksums where it has several. Taken of the bytes as they are now. */
async function fingerprint(bytes: Uint8Array): Promise<string> {
  if (bytes.length <= PIECE_BYTES) return sha256Of(bytes);
  const pieces = Array.from({ length: Math.ceil(bytes.length / PIECE_BYTES) }, (_, at) =>
    sha256Of(bytes.subarray(at * PIECE_BYTES, (at + 1) * PIECE_BYTES)),
  );
  return sha256Of(new TextEncoder().encode((await Promise.all(pieces)).join()));
}
