/** What training refuses, beside wrong arguments and calls: on every rank alike, so that a program can act on it. */
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
