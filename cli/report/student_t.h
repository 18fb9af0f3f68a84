// Student's t distribution, for intervals from few runs.
#ifndef CATCHMENT_CLI_REPORT_STUDENT_T_H_
#define CATCHMENT_CLI_REPORT_STUDENT_T_H_

namespace catchment {

// P(T <= t) with `dof` degrees of freedom, above 0 and not necessarily whole.
double StudentTCdf(double t, double dof);

// t with P(|T| <= t) = confidence; confidence in (0, 1).
double StudentTQuantile(double confidence, double dof);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_STUDENT_T_H_
