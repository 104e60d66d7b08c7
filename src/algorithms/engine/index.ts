/** The engines: finishing times of ranks, for any number of them. */
export { type EventOptions, type EventTiming, maxCredits, runEvents } from "./event-engine.ts";
export { type MessageEvent, MessageLog } from "./message-log.ts";
export type { Fabric, LinkModel, OnProgress, Timing } from "./model.ts";
export { type RunOptions, runRecurrence } from "./recurrence.ts";
export {
  type BriefBlock,
  type BriefStep,
  briefLane,
  type FoldedTiming,
  foldedTiming,
} from "./representative-rank.ts";
export {
  type LaneSource,
  lanesOfProgram,
  type Period,
  type Traffic,
  trafficOf,
  writtenLanes,
} from "./traffic.ts";
