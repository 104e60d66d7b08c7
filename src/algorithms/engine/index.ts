/** The engines: when ranks are done, for any number of them. */

export { type BriefBlock, type BriefStep, briefLane } from "./brief-lane.ts";
export { type EventOptions, type EventTiming, runEvents } from "./event-engine.ts";
export { type FoldedTiming, foldedTiming } from "./representative-rank.ts";
export { type LaneSource, lanesOfProgram, writtenLanes } from "./lanes.ts";
export { type Lockstep, runLockstep } from "./lockstep.ts";
export { type MessageEvent, MessageLog } from "./message-log.ts";
export type { Fabric, LinkModel, OnProgress, Timing } from "./model.ts";
export { type RunOptions, runRecurrence } from "./recurrence.ts";
export { type Period, type Traffic, trafficOf } from "./traffic.ts";
