/** The end of a rank's process. */
export interface RankEnd {
  readonly rank: number;
  /** Its exit status, or what stands for one: 128 and the signal, 127 for a process that could not start. */
  readonly status: number;
  /** In words. */
  readonly how: string;
  /** True when it ended because of a signal that the launcher sent. */
  readonly isStopped: boolean;
  readonly afterMs: number;
}
