/** The part of the Chrome trace format that traces use. */

/** An event of the Chrome trace format; times in microseconds. */
export interface ChromeEvent {
  readonly name: string;
  readonly ph: "X" | "s" | "f" | "M";
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly id?: number;
  readonly bp?: "e";
  readonly cat?: string;
  /** A color that chrome://tracing has a name for. */
  readonly cname?: "terrible";
  readonly args?: Readonly<Record<string, unknown>>;
}
