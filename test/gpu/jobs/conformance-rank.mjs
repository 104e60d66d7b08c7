// One rank of a job that does the parts of the conformance suite.
//   node conformance-rank.mjs [--nodes 2] [--compare-calls always]
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";
import "../../support/typescript-loader.mjs";
import { imitateNodes } from "./imitated-nodes.mjs";

const { answerParts } = await import("../../support/answering-rank.ts");
const { parts } = await import("../../conformance/parts.ts");

imitateNodes();
const at = process.argv.indexOf("--compare-calls");
const backend = at < 0 ? nccl() : nccl({ compareCalls: process.argv[at + 1] });
const comm = await connect({ backend, timeoutMs: 40_000 });
await answerParts(comm, parts);
await comm.close();
