// One rank of a job on the TCP backend that does trainings by their names.
import { connect } from "twinccl";
import { tcp } from "twinccl/tcp";
import "../../support/typescript-loader.mjs";

const { answerParts } = await import("../../support/answering-rank.ts");
const { dividedRuns } = await import("../../support/divided-runs.ts");

const comm = await connect({ backend: tcp(), timeoutMs: 40_000 });
const runOf = (name) => dividedRuns.find((run) => run.name === name);
await answerParts(comm, { train: (own, name) => runOf(name).program(own) });
await comm.close();
