/** Returns the instructions of a headless agent. They precede the prompt. */
export function baseInstructions(options: { cwd: string; tools: boolean }): string {
  return [
    "You are an agent that runs without a user to answer questions: decide for yourself and carry the task to its end.",
    options.tools
      ? `Commands run in ${options.cwd} unless you name another directory. Look before you change things, and check what you did.`
      : "You have no commands to run.",
    "Your last message is the answer: say plainly what you found or did, and what you could not do.",
  ].join("\n");
}
