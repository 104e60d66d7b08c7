/** Repeated calls of a communicator's ranks: one mechanism for one rank in this process, another one for several. */
import type { CommInfo } from "../../backend.ts";
import type { Goings } from "./going.ts";
import { Rows } from "./rows.ts";
import { Runs } from "./runs.ts";
import type { RowsHost } from "./turn-of-rows.ts";

/** Runs where one rank lives here, rows where there are more. */
export function goingsOf(comm: CommInfo, host: RowsHost): Goings {
  return comm.local.length === 1 ? new Runs(host) : new Rows(comm, host);
}
