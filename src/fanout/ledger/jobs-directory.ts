import path from "node:path";

/** Returns the directory of jobs: `$PROCWIRE_HOME/jobs`, or `.procwire/jobs` in the working directory. */
export function jobsDirectory(env: NodeJS.ProcessEnv, cwd: string): string {
  return env.PROCWIRE_HOME ? path.resolve(env.PROCWIRE_HOME, "jobs") : path.resolve(cwd, ".procwire", "jobs");
}
