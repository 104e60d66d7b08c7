/** One call with a recorded result: the call, its numbers, and the set-up of NCCL. */
import { bitsToNumber, type Choice, type NcclPin, type SmallFloat } from "../algorithms/index.ts";
import {
  type DType,
  dtypeInfo,
  type NamedReduceOp,
  type ReduceOp,
  specifications,
} from "../api/index.ts";

/** Collectives that fold: all others copy, and need no record. */
export type GoldenCollective = "allReduce" | "reduceScatter" | "reduce";

/** The sent numbers: moderate exponents, or any bits. */
export type GoldenValues = "norm" | "wild";

/** The set-up of NCCL, by the name that files use. */
export const environments = {
  plain: {},
  ch1: { maxChannels: 1 },
  ch5: { maxChannels: 5, buffSize: 262_144 },
  smallbuf: { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 },
  /** Both buffers lie in memory registered as symmetric. */
  sym: {},
} as const satisfies { readonly [name: string]: NcclPin };

/** Name of such a set-up. */
export type EnvironmentName = keyof typeof environments;

/** A call. */
export interface GoldenCase {
  readonly ranks: number;
  /** The algorithm and protocol forced by NCCL_ALGO and NCCL_PROTO; `undefined` where NCCL chooses. */
  readonly forced: Choice | undefined;
  readonly collective: GoldenCollective;
  readonly dtype: DType;
  readonly op: NamedReduceOp | "preMul";
  /** Elements as NCCL counts them. */
  readonly count: number;
  readonly values: GoldenValues;
  /** For a reduce. */
  readonly root: number | undefined;
  /** `undefined` in lines without one: plain, out of place, at aligned addresses. */
  readonly environment: EnvironmentName | undefined;
  /** The receive buffer lies in the send buffer. */
  readonly inPlace: boolean;
  /** Elements between an aligned address and the start of both buffers. */
  readonly offset: number;
}

/** All settings of NCCL in a case. */
export type NcclSetup = NcclPin;

/** The set-up of NCCL for a case. */
export function setupOf({ environment = "plain", forced }: GoldenCase): NcclSetup {
  return { ...environments[environment], ...forced };
}

/** True where both buffers must lie in symmetric memory. */
export function isSymmetric({ environment }: GoldenCase): boolean {
  return environment === "sym";
}

/** Blocks of `count` elements that each rank sends. */
export function sentBlocks({ collective, ranks }: GoldenCase): number {
  return specifications[collective].inBlocks(ranks, 0, 0);
}

/** Elements of all ranks' results together; those that the ranks share count once. */
export function resultElements(golden: GoldenCase): number {
  return golden.count * (golden.collective === "reduceScatter" ? golden.ranks : 1);
}

/** Bits of the scalar that small floats are multiplied by before the sum. */
const scalars: { readonly [D in SmallFloat]: number } = {
  float16: 0x34cd,
  bfloat16: 0x3e9a,
  float8e4m3: 0x2a,
  float8e5m2: 0x35,
};

/** The operator as calls take it. */
export function operatorOf({ op, dtype }: GoldenCase): ReduceOp {
  if (op !== "preMul") return op;
  if (dtypeInfo[dtype].kind !== "float") return { preMul: 3 };
  const bits = (scalars as Partial<Record<DType, number>>)[dtype];
  return { preMul: bits === undefined ? 0.3 : bitsToNumber(dtype as SmallFloat, bits) };
}
