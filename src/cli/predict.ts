/** `twinccl predict`: times that nothing measured: of NCCL's choices, of algorithms on links, and of a program. */
import { algorithmFileHelp } from "./algorithms.ts";
import type { Command, Context } from "./context.ts";
import { machineHelp } from "./machines.ts";
import { ncclSettingsHelp } from "./nccl-settings.ts";
import { optionLines, parseOptions } from "./options.ts";
import { predictJob } from "./predict/job.ts";
import { options, refuseOthers } from "./predict/options.ts";
import { predicted, predictSizes } from "./predict/sizes.ts";

/** The `predict` command. */
export const command: Command = {
  help: `Usage: twinccl predict COLLECTIVE [options]
       twinccl predict --job FILE [options]

Predicts the time of every algorithm of the catalogue, a row a size, and marks the best one (*).
With --like, --machine or a machine as --topology NCCL's choice and its time are beside them.
--job runs FILE's program (it default-exports \`async (comm) => result\`) in virtual time. Buffers
have sizes and no contents. It shows the time of steps, which begin at \`comm.work(0, "step")\`.
Nothing is measured: docs/predict.md says what the models hold and leave out.
COLLECTIVE: ${predicted.join(" ")}

${optionLines(options)}
${algorithmFileHelp}
${machineHelp}${ncclSettingsHelp}
Examples:
  twinccl predict all-reduce --like nccl-2.28 -b 1K -e 512M -f 8 --svg all-reduce.svg
  twinccl predict all-gather --like nccl-2.28 --ranks 4 --nccl symmetric --mode eager --latency
  twinccl predict --job program.mjs --ranks 4 --svg step.svg
  twinccl predict all-reduce --ranks 4096 -b 1K -e 256M -f 16
  twinccl predict all-reduce --ranks 512 --topology fat-tree --groups 8,8 --oversubscription 2
  twinccl predict all-reduce --ranks 64 --algorithm ring,./line.mjs
  twinccl predict all-to-all --ranks 512 --topology torus --dimensions 8x8x8 --json

Exit status: 0; 1 where a rank of a --job failed or ended the process; 2 for wrong usage.
`,
  run: runPredict,
};

async function runPredict(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  refuseOthers(parsed);
  const job = parsed.text("job");
  if (job === undefined) await predictSizes(parsed, context);
  else await predictJob(job, parsed, context);
  return 0;
}
