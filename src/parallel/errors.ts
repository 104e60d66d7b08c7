/** Errors of training other than wrong arguments and calls: equal on every rank, so that a program can act on them. */
import { CommError, type CommErrorFacts, type ErrorText } from "../api/index.ts";

/** Parameters got no gradient on ranks that had samples; all ranks see the same error and no parameter was changed. */
export class UnusedParametersError extends CommError {
  static override readonly name: string = "UnusedParametersError";
  readonly code = "ERR_COMM_UNUSED";
  /** Their names, in order. */
  readonly parameters: readonly string[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly parameters?: readonly string[] | undefined } = {},
  ) {
    super(text, facts);
    this.parameters = facts.parameters ?? [];
  }
}

/** The mean gradient holds infinities or NaN; all ranks see the same error and no parameter was changed. */
export class NonFiniteGradientError extends CommError {
  static override readonly name: string = "NonFiniteGradientError";
  readonly code = "ERR_COMM_NONFINITE";
  /** The parameters concerned, in order of names. */
  readonly parameters: readonly string[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly parameters?: readonly string[] | undefined } = {},
  ) {
    super(text, facts);
    this.parameters = facts.parameters ?? [];
  }
}

/** A checkpoint could not be written, or is incomplete, mixed, missing or not the required one; all ranks see it. */
export class CheckpointError extends CommError {
  static override readonly name: string = "CheckpointError";
  readonly code = "ERR_COMM_CHECKPOINT";
  /** The file or folder concerned, if any. */
  readonly file: string | undefined;

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly file?: string | undefined } = {},
  ) {
    super(text, facts);
    this.file = facts.file;
  }
}
