/** How the calls of a communicator's ranks that are made again go on: by how many of the ranks live in this process. */
import type { CommInfo } from "../../backend.ts";
import type { Goings } from "./going.ts";
import { Rows } from "./rows.ts";
import { Runs } from "./runs.ts";
import type { RowsHost } from "./turn-of-rows.ts";

/** Runs where one rank lives here, rows where there are more. */
export function goingsOf(comm: CommInfo, host: RowsHost): Goings {
  return comm.local.length === 1 ? new Runs(host) : new Rows(comm, host);
}
