/** The start of training: all ranks have the same model, the root's values, and one order of use. */
import type { Communicator } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import type { Divided } from "../divided.ts";
import type { Parameter, ParameterSet } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import type { Settings } from "./options.ts";

/** The properties that must be equal on all ranks. */
export interface SyncOptions {
  /** The trainer, for errors. */
  readonly trainer: string;
  readonly settings: Pick<Settings, "root" | "divided" | "maxGradientNorm" | "nonFinite">;
  /** The options, as lines of a description. */
  readonly options: readonly (readonly [string, string])[];
  /** Further properties of a parameter that must be equal, and their names; none when left out. */
  readonly also?: { readonly of: (name: string) => string; readonly names: string };
}

/** Compares the ranks' models, gives all ranks the root's values, and returns the order of use: the root's. */
export async function syncParameters(
  comm: Communicator,
  parameters: ParameterSet,
  { trainer, settings, options, also }: SyncOptions,
): Promise<Parameter[]> {
  // Before any call: only this rank fails.
  const lines = new Map(
    [...parameters].map(({ name, dtype, shape }) => {
      const copies = copiesOf(trainer, settings.divided, name);
      const held = copies === 1 ? "" : ` on ${copies} ranks`;
      return [name, `${dtype} [${shape.join(", ")}]${held}${also?.of(name) ?? ""}`] as const;
    }),
  );
  await assertSameOnRanks(comm, {
    action: `${trainer}.create`,
    kind: "option",
    lines: new Map(options),
    hint: "give every rank the same options",
  });
  await assertSameOnModel(`${trainer}.create`, settings);
  const same = also === undefined ? "" : `, with the same ${also.names}`;
  await assertSameOnRanks(comm, {
    action: `${trainer}.create`,
    kind: "parameter",
    lines,
    hint: `declare the same parameters on every rank, in any order${same}`,
  });
  const { root } = settings;
  await broadcastValues(comm, parameters, root);
  const declared = [...parameters].sort((a, b) => a.declared - b.declared);
  const order = await broadcastWords(
    comm,
    declared.map(({ index }) => index),
    root,
  );
  return order.map((index) => parameters.get(parameters.names[index] as string));
}

/** Refuses parts of a divided model that would treat its one norm differently: copies of a parameter would go apart. */
async function assertSameOnModel(
  action: string,
  { divided, maxGradientNorm, nonFinite }: SyncOptions["settings"],
): Promise<void> {
  if (divided === undefined) return;
  await assertSameOnRanks(divided.comm, {
    action,
    kind: "option",
    lines: new Map(Object.entries({ maxGradientNorm: String(maxGradientNorm), nonFinite })),
    hint: "give every part of the divided model the same",
  });
}

/** Number of ranks of a divided model that have a parameter. */
function copiesOf(trainer: string, divided: Divided | undefined, name: string): number {
  if (divided === undefined) return 1;
  const copies: unknown = divided.copies(name);
  const { size } = divided.comm;
  if (isCount(copies, 1) && copies <= size) return copies;
  throw invalid(
    trainer,
    `divided.copies("${name}")`,
    textOf(copies),
    `a number of ranks from 1 to ${size}`,
    undefined,
    { field: "divided" },
  );
}

/** Gives every rank the root's values, bit for bit. */
async function broadcastValues(
  comm: Communicator,
  parameters: ParameterSet,
  root: number,
): Promise<void> {
  for (const dtype of ["float32", "float64"] as const) {
    const values = parameters.values(dtype);
    if (values.length === 0) continue;
    const buffer = comm.alloc<"float32" | "float64">(dtype, values.length).copyFrom(values);
    try {
      await comm.broadcast({ recv: buffer, root });
      await buffer.copyTo(values);
    } finally {
      buffer.dispose();
    }
  }
}

async function broadcastWords(
  comm: Communicator,
  words: readonly number[],
  root: number,
): Promise<number[]> {
  if (words.length === 0) return [];
  const buffer = comm.alloc("uint32", words.length).copyFrom(Uint32Array.from(words));
  try {
    await comm.broadcast({ recv: buffer, root });
    return [...(await buffer.toHost())];
  } finally {
    buffer.dispose();
  }
}
