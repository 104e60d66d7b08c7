/** Every dtype and operator on the device against cpu(), bit by bit, on contributions that try arithmetic hard. */
import type { Fold, FusedFold } from "twinccl/algorithms";
import { type BoundBuffer, type BoundCall, cpu, HostMemory } from "twinccl/sim";
import { afterAll, beforeAll, expect, test } from "vitest";
import { foldFor } from "../../src/algorithms/arithmetic/index.ts";
import { symmetricFold } from "../../src/algorithms/nccl/symmetric-fold.ts";
import { bytesOf, type DType, dtypeInfo, dtypes } from "../../src/api/dtype.ts";
import type { ReduceOp } from "../../src/api/reduce-op.ts";
import { describeWebgpu, sharedExecutor } from "../support/webgpu.ts";
import { wildBytes } from "../support/wild-bytes.ts";

const count = 4_099;
const ranks = 6;

/** The rounding of a call's folds, and its operands. */
interface Shape {
  readonly name: string;
  readonly folds: readonly Fold[];
  readonly separate?: readonly Fold[];
  readonly partials?: boolean;
}

const same = (fold: Fold): Fold[] => Array.from({ length: ranks }, () => fold);

function shapesOf(dtype: DType): Shape[] {
  const { kind, bytes } = dtypeInfo[dtype];
  const float = kind === "float";
  const fold = (op: ReduceOp): Shape => ({
    name: typeof op === "object" ? `preMul ${op.preMul}` : op,
    folds: same(foldFor(dtype, op, ranks, "fused")),
  });
  const shapes: Shape[] = (["sum", "prod", "min", "max", "avg"] as const).map(fold);
  // The bits of -3, in the range of the dtype.
  const large = kind === "unsigned" ? 2n ** BigInt(8 * bytes) - 3n : -3;
  const scalars = float ? [-1.7, 0.5, 3e-5] : [large, 7];
  const mixed = Array.from({ length: ranks }, (_, rank) =>
    foldFor(dtype, { preMul: scalars[rank % scalars.length] as number | bigint }, ranks, "fused"),
  );
  shapes.push({ name: "scalars of each rank", folds: mixed });
  shapes.push({ name: "scaled partials", folds: mixed, partials: true });
  if (float && bytesOf(dtype) <= 4) {
    shapes.push({ name: "symmetric", folds: same(symmetricFold(dtype)), partials: true });
  }
  if (!float || bytesOf(dtype) === 1) return shapes;
  const separate = same(foldFor(dtype, "avg", ranks, "separate"));
  if (bytesOf(dtype) === 2) return [...shapes, { name: "avg, product rounded", folds: separate }];
  return [...shapes, { ...fold("avg"), name: "avg, rounded by position", separate }];
}

/** Chains of 1 to 6 contributions, some of them misaligned, that go to two ranks. */
function callOf(dtype: DType, { folds, separate, partials }: Shape, seed: number): BoundCall {
  const width = bytesOf(dtype);
  const at = (rank: number): number => (seed % 2 === 0 ? 0 : ((rank * 3) % 7) * width);
  const memory = (bytes: Uint8Array<ArrayBuffer>): HostMemory =>
    new HostMemory("sim:0", 0n, bytes.buffer, true);
  const bytes = count * width;
  const chunks = 6;
  const lengths = Float64Array.from([1, 2, 3, 997, 1_500, count - 2_503]);
  const offsets = lengths.map((_, i) => lengths.slice(0, i).reduce((sum, each) => sum + each, 0));
  const table = { lengths, offsets };
  const kind = partials === true ? "partial" : "contribution";
  return {
    dtype,
    plan: {
      groups: Array.from({ length: chunks }, (_, chunk) => [
        {
          operands: Array.from({ length: chunk + 1 }, (_, i) => ({
            kind: i === 0 ? ("contribution" as const) : kind,
            place: { rank: (i + seed) % ranks, chunk },
          })),
          final: true,
          reduces: true,
          targets: [0, 3].map((rank) => ({ rank, chunk })),
        },
      ]),
      inPlaceSafe: true,
      independent: true,
    },
    layout: { in: Array(ranks).fill(table), out: Array(ranks).fill(table) },
    inputs: Array.from({ length: ranks }, (_, rank) => {
      const all = wildBytes(dtype, count + 8, seed * 100 + rank);
      return { memory: memory(all), byteOffset: at(rank), byteLength: bytes };
    }),
    outputs: Array.from({ length: ranks }, (_, rank) => {
      const all = new Uint8Array(bytes + 8 * width).fill(0xa5);
      return { memory: memory(all), byteOffset: at(rank + 1), byteLength: bytes };
    }),
    folds,
    separate,
    inPlace: false,
  };
}

const outputsOf = ({ outputs }: BoundCall): Uint8Array[] =>
  outputs.map((buffer) => new Uint8Array(((buffer as BoundBuffer).memory as HostMemory).buffer));

/** The results of a call on both executors, as hexadecimal elements, where they differ. */
function differences(own: BoundCall, reference: BoundCall): string[] {
  const width = bytesOf(own.dtype);
  const found: string[] = [];
  outputsOf(own).forEach((bytes, rank) => {
    const expected = outputsOf(reference)[rank] as Uint8Array;
    for (let i = 0; i < bytes.length; i += width) {
      const hex = (of: Uint8Array): string =>
        Buffer.from(of.slice(i, i + width).reverse()).toString("hex");
      if (hex(bytes) === hex(expected)) continue;
      const at = i / width - (own.outputs[rank]?.byteOffset ?? 0) / width;
      const from = own.inputs.map((input) => {
        const { memory, byteOffset } = input as BoundBuffer;
        const all = new Uint8Array((memory as HostMemory).buffer, byteOffset);
        return Buffer.from(all.slice(at * width, (at + 1) * width).reverse()).toString("hex");
      });
      found.push(`rank ${rank} [${at}]: ${hex(bytes)}, cpu() gives ${hex(expected)}, from ${from}`);
    }
  });
  return found;
}

describeWebgpu("the device's arithmetic is cpu()'s", () => {
  let executor: Awaited<ReturnType<typeof sharedExecutor>>;
  beforeAll(async () => {
    executor = await sharedExecutor();
    await executor.open();
  });
  afterAll(() => executor.close());

  const cases = dtypes.flatMap((dtype) => shapesOf(dtype).map((shape) => ({ dtype, shape })));
  test.each(cases)("$dtype: $shape.name", async ({ dtype, shape }) => {
    for (const seed of [2, 5]) {
      const own = callOf(dtype, shape, seed);
      const reference = callOf(dtype, shape, seed);
      await cpu().execute(reference);
      await executor.execute(own);
      expect(differences(own, reference).slice(0, 5)).toEqual([]);
    }
  });

  test("folds that read what other folds overwrite", async () => {
    const call = (): BoundCall => {
      const plan = {
        groups: [groupOf(0, 1), groupOf(1, 0)],
        inPlaceSafe: false,
        independent: false,
      };
      const made = callOf("float32", { name: "sum", folds: sums }, 2);
      return { ...made, plan, outputs: made.inputs, inPlace: true };
    };
    const [own, reference] = [call(), call()];
    await cpu().execute(reference);
    await executor.execute(own);
    expect(differences(own, reference)).toEqual([]);
  });
});

const sums = same(foldFor("float32", "sum", ranks, "fused"));

/** A sum of two ranks' last chunk and of a fold of others, on top of the first rank's. */
const groupOf = (first: number, second: number): FusedFold[] => {
  const place = (rank: number) => ({ rank, chunk: 5 });
  const contribution = (rank: number) => ({ kind: "contribution" as const, place: place(rank) });
  const inner = [contribution(2), contribution(3)];
  const operands = [contribution(first), contribution(second), { kind: "fold" as const, fold: 0 }];
  return [
    { operands: inner, final: false, reduces: true, targets: [] },
    { operands, final: true, reduces: true, targets: [place(first)] },
  ];
};
