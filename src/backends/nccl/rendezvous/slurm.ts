/** Slurm's notation. */

/** From here on step numbers stand for the batch script, an interactive shell and the like. */
const firstSpecialStep = 0xffff_fff0;

/**
 * True for the number of a step that `srun` started. A batch script and an interactive shell see most of Slurm's variables
 * too, but are not one process a task.
 */
export function isStep(stepId: string | undefined): boolean {
  return stepId !== undefined && /^\d+$/.test(stepId) && Number(stepId) < firstSpecialStep;
}

/** The first host of a list such as `gpu[03-05,9],login1`. */
export function firstHost(nodes: string | undefined): string | undefined {
  if (nodes === undefined) return undefined;
  const [, before = "", inside, after = ""] = /^([^[,]*)(?:\[([^\]]*)\]([^,]*))?/.exec(nodes) ?? [];
  const first = inside === undefined ? "" : (inside.split(/[-,]/)[0] ?? "");
  return before + first + after || undefined;
}

/** The number of tasks on a node out of a list such as `4(x2),3`: 4 on nodes 0 and 1, 3 on node 2. */
export function tasksOnNode(
  tasks: string | undefined,
  nodeId: string | undefined,
): number | undefined {
  let node = Number(nodeId ?? "NaN");
  for (const part of tasks?.split(",") ?? []) {
    const [, count, times = "1"] = /^(\d+)(?:\(x(\d+)\))?$/.exec(part) ?? [];
    if (count === undefined) return undefined;
    if (node < Number(times)) return Number(count);
    node -= Number(times);
  }
  return undefined;
}

/** A port that all tasks of a step agree on without talking, in 20000..29999. */
export function slurmPort(step: string): number {
  let hash = 0;
  for (const letter of step) hash = (hash * 31 + letter.charCodeAt(0)) % 10_000;
  return 20_000 + hash;
}
