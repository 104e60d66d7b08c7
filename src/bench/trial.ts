/** One configuration, measured: warm-up, timed calls, and a checked call on fresh data. */

import type { DType, NamedReduceOp } from "../api/index.ts";
import { bytesOf, type Communicator, type DeviceBuffer, type World } from "../api/index.ts";
import { type CallShape, type MeasuredCollective, recvLength } from "./collectives/row.ts";
import type { Measurement } from "./document.ts";
import type { Oracle } from "./oracle.ts";

/** What is measured, and how often. */
export interface Trial {
  readonly row: MeasuredCollective;
  readonly shape: CallShape;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly oracle: Oracle;
  readonly inPlace: boolean;
  readonly iterations: number;
  readonly warmup: number;
  readonly check: boolean;
}

/** What the ranks of one trial share, all being in one process. */
interface Shared {
  began: number;
  ended: number;
  entered: number;
  wrong: number;
  checked: number;
}

/** Runs one trial on all ranks of a world. */
export async function runTrial(world: World, trial: Trial): Promise<Measurement> {
  const shared: Shared = { began: Infinity, ended: 0, entered: 0, wrong: 0, checked: 0 };
  await world.run((comm) => runRank(comm, trial, shared));
  const { row, shape, dtype, iterations, check } = trial;
  const seconds = (shared.ended - shared.began) / 1000 / iterations;
  const bytes = shape.sizeElements * bytesOf(dtype);
  const bandwidth = seconds > 0 ? bytes / 1e9 / seconds : 0;
  return {
    time: seconds * 1e6,
    alg_bw: bandwidth,
    bus_bw: bandwidth * row.busFactor(shape.ranks),
    nwrong: check ? shared.wrong : null,
    checked: shared.checked,
  };
}

async function runRank(comm: Communicator, trial: Trial, shared: Shared): Promise<void> {
  const { row, shape, op, iterations, warmup, check } = trial;
  const { send, recv, whole } = buffersOf(comm, trial);
  const data = { shape, send, recv, op };
  send.copyFrom(trial.oracle.input(comm.rank));
  for (let i = 0; i < warmup; i++) await row.call(comm, data);
  await comm.barrier();
  shared.began = Math.min(shared.began, performance.now());
  for (let i = 0; i < iterations; i++) await row.call(comm, data);
  // The clock stops when the slowest rank has its last result.
  shared.ended = Math.max(shared.ended, performance.now());
  if (check && row.moves) {
    // Fresh data: in place, every call has changed the input, and a stale output must not pass.
    for (const buffer of whole) buffer.fill(0);
    send.copyFrom(trial.oracle.input(comm.rank));
    await row.call(comm, data);
    shared.wrong += trial.oracle.wrong(comm.rank, await recv.toHost());
    shared.checked += recv.length;
  } else if (check) await checkBarrier(comm, trial, shared);
  for (const buffer of whole) buffer.dispose();
}

/** The buffers of one rank's call: of its lengths, overlapping as the collective has it when in place. */
export function buffersOf(
  comm: Communicator,
  { row, shape, dtype, inPlace }: Pick<Trial, "row" | "shape" | "dtype" | "inPlace">,
): { send: DeviceBuffer; recv: DeviceBuffer; whole: readonly DeviceBuffer[] } {
  const { rank } = comm;
  const sends = row.sendLength(shape, rank);
  const receives = recvLength(row, shape, rank);
  if (!inPlace || row.inPlace === undefined) {
    const send = comm.alloc(dtype, sends);
    const recv = comm.alloc(dtype, receives);
    return { send, recv, whole: [send, recv] };
  }
  const { sendAt, recvAt } = row.inPlace(shape, rank);
  const both = comm.alloc(dtype, Math.max(sendAt + sends, recvAt + receives));
  return {
    send: both.subarray(sendAt, sendAt + sends),
    recv: both.subarray(recvAt, recvAt + receives),
    whole: [both],
  };
}

/** No rank may leave a barrier before all have come; they come one after another. */
async function checkBarrier(
  comm: Communicator,
  { row, shape, op }: Trial,
  shared: Shared,
): Promise<void> {
  await comm.barrier();
  const none = comm.alloc("uint8", 0);
  for (let turn = 0; turn < comm.rank; turn++) await Promise.resolve();
  shared.entered++;
  await row.call(comm, { shape, send: none, recv: none, op });
  if (shared.entered !== comm.size) shared.wrong++;
  shared.checked++;
  none.dispose();
}
