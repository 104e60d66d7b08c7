// The backend of the scripts: nccl(), or the one that TWINCCL_TEST_BACKEND names.
import { nccl } from "twinccl/nccl";
import { tcp } from "twinccl/tcp";

/** Makes the backend. */
export const backend = process.env.TWINCCL_TEST_BACKEND === "tcp" ? tcp : nccl;
