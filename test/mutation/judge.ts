/**
 * Is a mutant that the verifier let pass as good as the program? Only execution may say so.
 *
 * With every number of credits, in every resume order, in place and apart, it must end as the program does: finished
 * wherever that finishes, stuck wherever that is stuck, and with the same bits, which are also the specified ones. It
 * must take the same steps and send the same bytes. Where ranks are to be held, no rank may leave while one is absent.
 */
import { specifications } from "twinccl";
import { evaluate, layoutOf, type Program } from "twinccl/algorithms";
import { type Ending, interpret } from "../support/interpreter.ts";
import { readings } from "./arithmetic.ts";
import { specified, type WildCall, wildCall } from "./wild.ts";

/** Resume orders tried. */
const orders = [0, 1, 2, 3, 4];

/** A setting in which programs are run. */
interface Setting {
  readonly credits: number;
  readonly inPlace: boolean;
}

/** A program together with how it ends in every setting; what its mutants are compared with. */
export interface Norm {
  readonly program: Program;
  readonly call: WildCall;
  readonly specified: readonly (readonly number[])[];
  readonly endings: readonly { readonly setting: Setting; readonly ending: Ending }[];
  readonly figures: string;
}

/** Runs the program itself, and refuses one that does not do what its collective is. */
export function normOf(program: Program, credits: number): Norm {
  const call = wildCall(program);
  const needed = specified(program, call);
  const endings = settingsOf(program, credits).map((setting) => {
    const ending = run(program, call, setting, 0);
    if (setting.credits >= credits && !ending.finished) throw new Error(`stuck: ${ending.fault}`);
    if (ending.finished && !fits(program, ending, needed)) throw new Error("not as specified");
    return { setting, ending };
  });
  return { program, call, specified: needed, endings, figures: figuresOf(program, call) };
}

/** The difference between a mutant and its program when it is executed; `undefined` when there is none. */
export function differenceOf(mutant: Program, norm: Norm): string | undefined {
  const { call, endings, figures } = norm;
  for (const { setting, ending } of endings) {
    for (const order of orders) {
      const found = run(mutant, call, setting, order);
      const where = `credits ${setting.credits}, order ${order}${setting.inPlace ? ", in place" : ""}`;
      if (found.fault !== undefined) return `${where}: ${found.fault}`;
      if (found.finished !== ending.finished) {
        return `${where}: ${found.finished ? "finishes" : "gets stuck"}`;
      }
      if (!found.finished) continue;
      if (!sameBits(found, ending)) return `${where}: other bits`;
      if (!fits(mutant, found, norm.specified)) return `${where}: not as specified`;
    }
    const leaver = earlyLeaver(mutant, call, setting);
    if (leaver !== undefined) return `rank ${leaver} leaves early with credits ${setting.credits}`;
  }
  const mutated = figuresOf(mutant, call);
  return mutated === figures ? undefined : `costs ${mutated}, not ${figures}`;
}

function settingsOf({ collective, ranks, root }: Program, credits: number): Setting[] {
  const spec = specifications[collective];
  const hasInPlace = Array.from({ length: ranks }, (_, rank) => rank).some((rank) =>
    Array.from({ length: spec.inBlocks(ranks, rank, root) }).some(
      (_, block) => spec.inPlace(ranks, rank, block, root) !== undefined,
    ),
  );
  return [...new Set([0, 1, credits])].flatMap((each) =>
    (hasInPlace ? [false, true] : [false]).map((inPlace) => ({ credits: each, inPlace })),
  );
}

function run(program: Program, call: WildCall, setting: Setting, order: number): Ending {
  return interpret({ ...call, ...setting, program, order });
}

function sameBits(a: Ending, b: Ending): boolean {
  return a.outputs.every((output, rank) =>
    output.every((value, i) => Object.is(value, b.outputs[rank]![i])),
  );
}

function fits(
  { collective }: Program,
  { outputs }: Ending,
  needed: readonly (readonly number[])[],
): boolean {
  const width = specifications[collective].reduces ? readings : 1;
  return outputs.every(
    (output, rank) =>
      output.length === needed[rank]!.length * width &&
      needed[rank]!.every((value, i) => value === output[i * width + width - 1]),
  );
}

/** A rank that leaves a synchronising call while another one has not entered it. */
function earlyLeaver(program: Program, call: WildCall, setting: Setting): number | undefined {
  if (!specifications[program.collective].synchronises) return undefined;
  for (let absent = 0; absent < program.ranks; absent++) {
    const { left } = interpret({ ...call, ...setting, program, order: 0, absent });
    const leaver = left.find((rank) => rank !== absent);
    if (leaver !== undefined) return leaver;
  }
  return undefined;
}

/** Rounds on the longest path, and elements that each rank sends: of an even call, and of the wild one. */
function figuresOf(program: Program, call: WildCall): string {
  const even = layoutOf(program, { count: 4 * program.chunksPerBlock });
  const model = { latency: 0, occupancy: () => 1 };
  const [steps, sent, , wild] = [even, call.layout].flatMap((layout) => {
    const start = new Float64Array(program.ranks);
    const { finished, sentElements } = evaluate(program, layout, start, model);
    return [Math.max(...finished), sentElements.join(" ")] as const;
  });
  return `${steps} steps, sent ${sent} / ${wild}`;
}
