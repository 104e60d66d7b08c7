// One rank of a job that does the parts of the conformance suite.
//   node conformance-rank.mjs [--nodes 2] [--compare-calls always] [--tls]
import { connect } from "twinccl";
import "../../support/typescript-loader.mjs";
import { backend } from "./backend.mjs";
import { imitateNodes } from "./imitated-nodes.mjs";

const { answerParts } = await import("../../support/answering-rank.ts");
const { parts } = await import("../../conformance/parts.ts");

imitateNodes();
const at = process.argv.indexOf("--compare-calls");
const compareCalls = at < 0 ? undefined : process.argv[at + 1];
const tls = process.argv.includes("--tls") ? { tls: true } : {};
const comm = await connect({ backend: backend({ compareCalls, ...tls }), timeoutMs: 40_000 });
await answerParts(comm, parts);
await comm.close();
