// One rank of a job that does the parts beside this file.
//   node rank.mjs [early|late]     ends before it calls, or after the test has hung up, with status 5
import "../../support/typescript-loader.mjs";

const { answerParts } = await import("../../support/answering-rank.ts");
const { parts } = await import("./parts.ts");

const [rank, size] = [process.env.TWINCCL_RANK, process.env.TWINCCL_SIZE].map(Number);
const fails = rank === 1 ? process.argv[2] : undefined;
if (fails === "early") process.exit(5);
if (fails === "never") await new Promise((resolve) => setTimeout(resolve, 60_000));
await answerParts({ rank, size }, parts);
if (fails === "late") process.exit(5);
