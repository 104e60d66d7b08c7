// The training step of training-step.mjs, with the gradients sent after backward.
import { trainingStep } from "./training-step.mjs";

export default trainingStep({ overlap: false });
