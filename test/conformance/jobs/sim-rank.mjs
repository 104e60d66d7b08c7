// A job of one rank on the simulation, which does the suite's parts.
import { connect } from "twinccl";
import { sim } from "twinccl/sim";
import "../../support/typescript-loader.mjs";

const { answerParts } = await import("../../support/answering-rank.ts");
const { parts } = await import("../parts.ts");

const comm = await connect({ backend: sim() });
await answerParts(comm, parts);
await comm.close();
