/** Something wrong with a program. */
export interface Problem {
  readonly pass:
    | "match"
    | "contribution"
    | "hazard"
    | "fusion"
    | "deadlock"
    | "cost"
    | "association"
    | "symmetry";
  readonly text: string;
}
