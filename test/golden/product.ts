/**
 * Replays recorded NCCL results through the product itself: `createWorld`, `alloc`, `subarray` and the collective.
 */
import { createHash } from "node:crypto";
import { bytesOf, type Communicator, createWorld, type DeviceBuffer, dtypeInfo } from "twinccl";
import { sim } from "twinccl/sim";
import { canonicalise } from "./canonical.ts";
import { fillInput } from "./inputs.ts";
import { dtypeNames, environments, type GoldenCase, idOf, opOf } from "./replay.ts";

/** True when every hash of a case comes out of the simulated world, on every rank that has a result. */
export async function productAgrees(golden: GoldenCase): Promise<boolean> {
  const { n, ap, coll, env = "plain", root = 0, h } = golden;
  const [algorithm, protocol] = ap.split("-") as ["Ring" | "Tree", "LL" | "LL128" | "Simple"];
  const nccl = { ...environments[env], ...(ap === "default" ? {} : { algorithm, protocol }) };
  const world = await createWorld({ backend: sim({ like: "nccl-2.28", nccl }), size: n });
  const found = await world.run((comm) => resultOf(comm, golden));
  await world.close();
  if (coll === "reduce") return found[root] === h;
  return found.every((hash, rank) => hash === (typeof h === "string" ? h : h[rank]));
}

/** Hash of what a rank ends with; `undefined` where it has no result. */
async function resultOf(comm: Communicator, golden: GoldenCase): Promise<string | undefined> {
  const { coll, dt, op, count, root = 0, inplace = false, offset = 0 } = golden;
  const dtype = dtypeNames[dt];
  const blocks = coll === "reduceScatter" ? comm.size : 1;
  const memory = { symmetric: golden.env === "sym" };
  const send = comm.alloc(dtype, offset + blocks * count, memory).subarray(offset);
  fill(send, golden, comm.rank);
  const own = coll === "reduceScatter" ? comm.rank * count : 0;
  const recv = inplace
    ? send.subarray(own, own + count)
    : comm.alloc(dtype, offset + count, memory).subarray(offset);
  const reduction = opOf(op, dt);
  if (coll === "allReduce") await comm.allReduce({ send, recv, op: reduction });
  else if (coll === "reduceScatter") await comm.reduceScatter({ send, recv, op: reduction });
  else {
    const target = comm.rank === root ? { recv } : {};
    await comm.reduce({ send, ...target, op: reduction, root });
    if (comm.rank !== root) return undefined;
  }
  return hashOf(recv, golden);
}

function fill(buffer: DeviceBuffer, golden: GoldenCase, rank: number): void {
  const { dt, op, cls } = golden;
  const memory = new ArrayBuffer(buffer.byteLength);
  const drawn = cls === "wild" ? "wild" : op === "prod" ? "narrow" : "norm";
  fillInput(memory, buffer.length, dt, drawn, idOf(golden), rank);
  buffer.copyFrom(dtypeInfo[buffer.dtype].view(memory, 0, buffer.length));
}

async function hashOf(buffer: DeviceBuffer, { dt, op }: GoldenCase): Promise<string> {
  const host = await buffer.toHost();
  const memory = host.buffer as ArrayBuffer;
  canonicalise(memory, 0, host.length, dt, op === "min" || op === "max");
  const bytes = new Uint8Array(memory, 0, host.length * bytesOf(buffer.dtype));
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}
