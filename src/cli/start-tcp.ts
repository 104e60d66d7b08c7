/** The table of `twinccl start` of two processes over TCP, which `twinccl bench` measures. */
import { Writable } from "node:stream";
import {
  type BenchDocument,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  tallyText,
} from "../bench/index.ts";
import type { Context } from "./context.ts";
import { PrefixedOutput } from "./launch/report.ts";
import { startRanks } from "./placement.ts";

/** Two processes, and few calls: seconds on two cores that others use as well. */
const processes = 2;
const processCalls = "all-reduce -b 8 -e 2M -f 64 -n 10 -w 3 --backend tcp --json";

/** Prints the table of two processes, or the reason for leaving it out. True without wrong elements. */
export async function runTcp(context: Context): Promise<boolean> {
  const document = await measuredProcesses(context);
  if (typeof document === "string") {
    context.out(`# the table of processes over TCP is left out: ${document}\n`);
    return true;
  }
  const style = { simulated: false };
  const { results } = document;
  context.out(`#\n# all-reduce: ${processes} ranks in ${processes} processes, over TCP\n`);
  context.out(tableHead(style) + results.map(tableRow).join("") + tableFoot(results, style));
  const found = tally(results);
  context.out(`${tallyText(found, processes)}\n`);
  return found.wrong === 0;
}

/** The figures of processes; a text is the reason why there are none. */
async function measuredProcesses(context: Context): Promise<BenchDocument | string> {
  context.progress("allReduce in processes");
  const [stdout, stderr] = [new Collected(), new Collected()];
  const report = new PrefixedOutput(() => "", { stdout, stderr });
  const args = [...processCalls.split(" "), "-g", String(processes)];
  const err = (text: string): void => void stderr.write(text);
  let endedBy: NodeJS.Signals | undefined;
  const onSignal = (signal: NodeJS.Signals): void => {
    endedBy = signal;
  };
  try {
    const command = { name: "bench", args, size: processes, report, timeoutMs: 30_000, onSignal };
    await startRanks(command, { ...context, err });
    // The signal was meant for this process too.
    if (endedBy !== undefined) process.kill(process.pid, endedBy);
    return JSON.parse(stdout.text) as BenchDocument;
  } catch (error) {
    // A rank that fails prints its error; the launcher prints why one did not start.
    const lines = stderr.text.split("\n").filter((line) => line !== "");
    return lines.find((line) => line.includes("Error: ")) ?? lines.at(-1) ?? String(error);
  }
}

/** An output that is kept. */
class Collected extends Writable {
  text = "";

  override _write(chunk: Buffer, _: unknown, done: () => void): void {
    this.text += chunk.toString("latin1");
    done();
  }
}
