/** Refusals of training, beside wrong arguments and calls: on every rank alike, so that a program can act on it. */
import { CommError, type CommErrorFacts, type ErrorText } from "../api/index.ts";

/** Parameters got no gradient on ranks that had samples; all ranks see the same error and no parameter was changed. */
export class UnusedParametersError extends CommError {
  readonly code = "ERR_COMM_UNUSED";
  /** Their names, in order. */
  readonly parameters: readonly string[];

  constructor(text: ErrorText, facts: CommErrorFacts & { readonly parameters: readonly string[] }) {
    super(text, facts);
    this.parameters = facts.parameters;
  }
}

/** The mean gradient holds infinities or NaN; all ranks see the same error and no parameter was changed. */
export class NonFiniteGradientError extends CommError {
  readonly code = "ERR_COMM_NONFINITE";
  /** The parameters concerned, in order of names. */
  readonly parameters: readonly string[];

  constructor(text: ErrorText, facts: CommErrorFacts & { readonly parameters: readonly string[] }) {
    super(text, facts);
    this.parameters = facts.parameters;
  }
}

/** A checkpoint could not be written, or is torn, mixed, missing or another one than is needed; all ranks see it. */
export class CheckpointError extends CommError {
  readonly code = "ERR_COMM_CHECKPOINT";
  /** The file or folder concerned, where it is one. */
  readonly file: string | undefined;

  constructor(text: ErrorText, facts: CommErrorFacts & { readonly file?: string | undefined }) {
    super(text, facts);
    this.file = facts.file;
  }
}
