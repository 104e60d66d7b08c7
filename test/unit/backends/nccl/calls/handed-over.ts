/** The calls that a job's ranks hand over to NCCL, each on its own stream, in order. */
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";

/** A call of NCCL, on the device of the rank that made it. */
export interface Handed {
  readonly device: number;
  readonly call: string;
  /** Elements; bytes of a window. */
  readonly count: number;
}

/** Position of the count among the arguments; behind the communicator for windows. */
const counted = {
  ...{ allReduce: 2, reduce: 2, reduceScatter: 2, allGather: 2, broadcast: 2 },
  ...{ alltoAll: 2, send: 1, recv: 1, registerWindow: 2 },
} as const;

/** Notes the calls from here on. */
export function noteHanded({ nccl, machine }: FakeGpus): Handed[] {
  const handed: Handed[] = [];
  for (const [call, place] of Object.entries(counted)) {
    const owner: object = call in nccl.data ? nccl.data : nccl.calls;
    const calls = owner as Record<string, (...args: unknown[]) => unknown>;
    const real = calls[call] as (...args: unknown[]) => unknown;
    calls[call] = (...args) => {
      const own = call === "registerWindow" ? args[0] : args.at(-2);
      const device = nccl.ends.get(own as bigint)?.device ?? machine.current;
      handed.push({ device, call, count: args[place] as number });
      return real(...args);
    };
  }
  return handed;
}

/** The calls of one device. */
export const onDevice = (handed: readonly Handed[], device: number): string[] =>
  handed.flatMap((each) => (each.device === device ? [`${each.call} ${each.count}`] : []));
