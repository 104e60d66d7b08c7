/** One configuration, measured: warm-up, timed calls, and a checked call on fresh data. */

import type { Communicator, DeviceBuffer, DType, NamedReduceOp } from "../api/index.ts";
import { type CallShape, type MeasuredCollective, recvLength } from "./collectives.ts";
import type { Measurement } from "./document.ts";
import { figuresOf, measurementOf, type RankFigures } from "./document.ts";
import { callOnce, type Issue, timeCalls } from "./issue.ts";
import type { BenchJob } from "./job.ts";
import type { Oracle } from "./oracle.ts";

/** The measured call and its repetitions. */
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
  readonly issue: Issue;
}

/** State that the ranks of one process share, for the check of a barrier. */
interface BarrierCount {
  entered: number;
}

/** Runs one trial on all ranks of a job. */
export async function runTrial(job: BenchJob, trial: Trial): Promise<Measurement> {
  // The entry of ranks of other processes into a barrier is not visible here.
  const barrier: BarrierCount | undefined = job.isWhole ? { entered: 0 } : undefined;
  const check = trial.check && (trial.row.moves || job.isWhole);
  const figures = await job.run((comm) => runRank(comm, trial, barrier));
  return measurementOf(figures, { ...trial, check });
}

async function runRank(
  comm: Communicator,
  trial: Trial,
  barrier: BarrierCount | undefined,
): Promise<RankFigures> {
  const { row, shape, op, check } = trial;
  const { send, recv, whole } = buffersOf(comm, trial);
  const data = { shape, send, recv, op };
  // Without a check zeros suffice: creating the data of large messages takes longer than moving it.
  if (check) send.copyFrom(trial.oracle.input(comm.rank));
  const timed = await timeCalls(comm, trial, () => row.call(comm, data));
  let [wrong, checked] = [0, 0];
  if (check && row.moves) {
    // Fresh data: in place, every call has changed the input, and a stale output must not pass.
    for (const buffer of whole) buffer.fill(0);
    send.copyFrom(trial.oracle.input(comm.rank));
    await callOnce(comm, trial.issue, () => row.call(comm, data));
    wrong = trial.oracle.wrong(comm.rank, await recv.toHost());
    checked = recv.length;
  } else if (check && barrier !== undefined) {
    wrong = await checkBarrier(comm, trial, barrier);
    checked = 1;
  }
  for (const buffer of whole) buffer.dispose();
  return figuresOf(timed, { wrong, checked });
}

/** The buffers of one rank's call, overlapping as the collective defines it if in place. */
export function buffersOf(
  comm: Communicator,
  {
    row,
    shape,
    dtype,
    inPlace,
    issue,
  }: Pick<Trial, "row" | "shape" | "dtype" | "inPlace"> & { readonly issue?: Issue },
): { send: DeviceBuffer; recv: DeviceBuffer; whole: readonly DeviceBuffer[] } {
  const { rank } = comm;
  const sends = row.sendLength(shape, rank);
  const receives = recvLength(row, shape, rank);
  const alloc = (length: number): DeviceBuffer =>
    issue?.symmetric ? comm.alloc(dtype, length, { symmetric: true }) : comm.alloc(dtype, length);
  if (!inPlace || row.inPlace === undefined) {
    const send = alloc(sends);
    const recv = alloc(receives);
    return { send, recv, whole: [send, recv] };
  }
  const { sendAt, recvAt } = row.inPlace(shape, rank);
  const both = alloc(Math.max(sendAt + sends, recvAt + receives));
  return {
    send: both.subarray(sendAt, sendAt + sends),
    recv: both.subarray(recvAt, recvAt + receives),
    whole: [both],
  };
}

/** Checks that no rank leaves a barrier before all have entered, one after another. 1 if this rank did. */
async function checkBarrier(
  comm: Communicator,
  { row, shape, op }: Trial,
  barrier: BarrierCount,
): Promise<number> {
  await comm.barrier();
  const none = comm.alloc("uint8", 0);
  for (let turn = 0; turn < comm.rank; turn++) await Promise.resolve();
  barrier.entered++;
  await row.call(comm, { shape, send: none, recv: none, op });
  none.dispose();
  return barrier.entered === comm.size ? 0 : 1;
}
