// The classic dashboard in JSON: an enumeration is one of its texts. All other types are strict.
import type { AnnotationQuery, Dashboard, VariableModel } from "@grafana/schema";

export type Written<T> = T extends string
  ? `${T}`
  : T extends readonly (infer One)[]
    ? Written<One>[]
    : T extends object
      ? { [Key in keyof T]: Written<T[Key]> }
      : T;

// What Prometheus's data source reads from an annotation, and variables from a query, is not in the schema.
type PrometheusAnnotation = Written<AnnotationQuery> & {
  expr: string;
  step: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
};
type DefinedVariable = Written<VariableModel> & { definition?: string };

export type WrittenDashboard = Omit<Written<Dashboard>, "annotations" | "id" | "templating"> & {
  annotations: { list: PrometheusAnnotation[] };
  // Grafana gives the number; a file must have none.
  id: null;
  templating: { list: DefinedVariable[] };
};
