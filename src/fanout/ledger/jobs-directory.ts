import path from "node:path";

/** Variable with the directory of jobs. */
export const JOBS_VARIABLE = "PROCWIRE_JOBS";

/** Returns the directory of jobs: `$PROCWIRE_JOBS`, `$PROCWIRE_HOME/jobs`, or `.procwire/jobs` in the working directory. */
export function jobsDirectory(env: NodeJS.ProcessEnv, cwd: string): string {
  const directory = env[JOBS_VARIABLE];
  if (directory) return path.resolve(directory);
  return env.PROCWIRE_HOME ? path.resolve(env.PROCWIRE_HOME, "jobs") : path.resolve(cwd, ".procwire", "jobs");
}
