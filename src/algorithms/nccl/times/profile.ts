/** The profile of a machine: the numbers of the time model with their origin, as data. */
import type { DType } from "../../../api/dtype.ts";
import type { TopologyName } from "../machines.ts";
import type { CallMode } from "./model.ts";
import type { ModelNumbers } from "./numbers.ts";

/** Least and most of something measured. */
export type MeasuredRange = readonly [least: number, most: number];

/** The measured calls of one kind. */
export interface MeasuredCalls {
  readonly ranks: MeasuredRange;
  /** Bytes as nccl-tests counts them. */
  readonly bytes: MeasuredRange;
}

/** The measured calls of a collective. */
export interface MeasuredCollective {
  /** By the way of calling, as `modeText` words it; with ", misaligned blocks" for blocks at addresses that are no multiple of 16. */
  readonly modes: Readonly<Record<string, MeasuredCalls>>;
  /** By NCCL's choice, as `choiceOf` names it. Sizes reach up to the next measured one; those of a forced choice are the measured ones. */
  readonly choices: Readonly<Record<string, MeasuredCalls>>;
  /** A fold of another type may take longer; a copy of it does not. */
  readonly dtypes: readonly DType[];
}

/** The numbers of one machine with their origin; a file of a profile holds exactly these fields, as JSON. */
export interface MachineProfile {
  readonly name: string;
  /** The machine in words, such as "8 x NVIDIA H200, NVSwitch". */
  readonly machine: string;
  /** The name of the machine that the plans follow. */
  readonly topology: TopologyName;
  readonly nccl: string;
  /** Day of the measurements, as 2026-11-22. */
  readonly date: string;
  /** The program's commit at the measurements; empty where they are not its own. */
  readonly commit: string;
  /** Origins of the measurements. */
  readonly sources: readonly string[];
  /** The way of making calls of a question that leaves it out. */
  readonly mode: CallMode;
  /** By collective. */
  readonly measured: Readonly<Record<string, MeasuredCollective>>;
  readonly numbers: ModelNumbers;
}
