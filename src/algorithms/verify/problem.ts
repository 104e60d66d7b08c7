/** Something wrong with a program. */
export interface Problem {
  readonly pass: "match" | "contribution" | "hazard" | "deadlock" | "cost" | "fusion";
  readonly text: string;
}
