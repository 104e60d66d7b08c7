/**
 * Schedules: the order of a stage's computations and exchanges, as data.
 *
 * Messages between two neighbours belong to one exchange on both sides. So neither waits for the other to send first, although
 * every message waits for its receiver. Micro-batches go forward in their order, and backward in the same.
 */
import type { Direction } from "../data-parallel/backward.ts";

/** `gpipe`: all micro-batches forward, then all backward. `1f1b`: each backward as soon as possible (PipeDream-Flush). */
export type PipelineSchedule = "gpipe" | "1f1b";

/** The next work of a stage. Numbers are those of micro-batches. */
export type ScheduleAction =
  | { readonly kind: "forward"; readonly microBatch: number }
  | { readonly kind: "backward"; readonly microBatch: number }
  | StageExchange;

/** Messages of one group. */
export interface StageExchange {
  readonly kind: "exchange";
  /** Receives the stage's input. */
  readonly input?: number | undefined;
  /** Sends the stage's output. */
  readonly output?: number | undefined;
  /** Receives the gradient by the output. */
  readonly above?: number | undefined;
  /** Sends the gradient by the input. */
  readonly below?: number | undefined;
}

/** The stage, the number of stages and of micro-batches. */
export interface StagePosition {
  readonly rank: number;
  readonly size: number;
  readonly microBatches: number;
  /** Most micro-batches among the pipelines that run in step; those beyond its own are not computed. */
  readonly rounds: number;
}

/** All actions of a stage in a step, in order. */
export function actionsOf(schedule: PipelineSchedule, position: StagePosition): ScheduleAction[] {
  const { rank, size, microBatches } = position;
  const real = (at: number | undefined): number | undefined =>
    at !== undefined && at < microBatches ? at : undefined;
  const all = schedule === "gpipe" ? gpipe(position) : oneForwardOneBackward(position);
  return all.flatMap((action): ScheduleAction[] => {
    if (action.kind !== "exchange") return [action];
    const { input, output, above, below } = action;
    const own: StageExchange = {
      kind: "exchange",
      ...(rank > 0 && { input: real(input), below: real(below) }),
      ...(rank < size - 1 && { output: real(output), above: real(above) }),
    };
    const messages = [own.input, own.output, own.above, own.below];
    return messages.every((each) => each === undefined) ? [] : [own];
  });
}

/** The order of a stage's passes through its layers. */
export function passesOf(
  schedule: PipelineSchedule,
  position: Omit<StagePosition, "microBatches">,
): Direction[] {
  return actionsOf(schedule, { ...position, microBatches: position.rounds }).flatMap(({ kind }) =>
    kind === "exchange" ? [] : [kind],
  );
}

function gpipe({ rounds }: StagePosition): ScheduleAction[] {
  const all = Array.from({ length: rounds }, (_, microBatch) => microBatch);
  return [...all.flatMap(forwardAlone), ...all.flatMap(backwardAlone)];
}

/**
 * A stage is ahead of the last one by one micro-batch per later stage. From then on, each forward is followed by the backward
 * of the returning micro-batch.
 */
function oneForwardOneBackward({ rank, size, rounds }: StagePosition): ScheduleAction[] {
  const ahead = Math.min(size - 1 - rank, rounds);
  const actions: ScheduleAction[] = [];
  for (let at = 0; at < ahead; at++) actions.push(...forwardAlone(at));
  if (ahead < rounds) actions.push({ kind: "exchange", input: ahead });
  for (let at = ahead; at < rounds; at++) {
    const back = at - ahead;
    const next = at + 1 < rounds ? at + 1 : undefined;
    actions.push(
      { kind: "forward", microBatch: at },
      { kind: "exchange", output: at, above: back },
      { kind: "backward", microBatch: back },
      { kind: "exchange", below: back, input: next },
    );
  }
  for (let at = rounds - ahead; at < rounds; at++) actions.push(...backwardAlone(at));
  return actions;
}

function forwardAlone(microBatch: number): ScheduleAction[] {
  return [
    { kind: "exchange", input: microBatch },
    { kind: "forward", microBatch },
    { kind: "exchange", output: microBatch },
  ];
}

function backwardAlone(microBatch: number): ScheduleAction[] {
  return [
    { kind: "exchange", above: microBatch },
    { kind: "backward", microBatch },
    { kind: "exchange", below: microBatch },
  ];
}
