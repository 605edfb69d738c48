/* Several processes, and the owner, change the same elements. No change is lost, even for elements without CPU atomics. */
#include <complex.h>

#include "check.h"

#define TURNS 4000

struct shared {
	_Alignas(64) uint64_t plain;
	_Alignas(64) long double complex wide;
	_Alignas(64) double pad;
	double complex crooked; /* 8 bytes beside a multiple of 16 */
	_Alignas(64) float first;
	float complex small; /* 4 bytes beside a multiple of 8 */
	_Alignas(64) long double extended;
};

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	int me = atoi(argv[2]), all = atoi(argv[3]);
	struct wishes wishes = { .caps = FI_ATOMIC | FI_RMA };
	open_endpoint(&wishes, NULL, 0);
	struct shared *shared = aligned_alloc(4096, 4096);
	memset(shared, 0, 4096);
	struct fid_mr *mr = NULL;
	char name[512];
	size_t len = sizeof name;
	if (me == 0) {
		EXPECT(fi_mr_reg(domain, shared, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), 0);
		EXPECT(fi_getname(&ep->fid, name, &len), 0);
		show("owner", name, len);
	}
	CHECK(see("owner", name, sizeof name) > 0);
	EXPECT(fi_av_insert(av, name, 1, &peer, 0, NULL), 1);
	uint64_t one = 1;
	long double complex wide = 1 + 2 * I;
	double complex crooked = 1 - 1 * I;
	float complex small = 2 + 1 * I;
	long double extended = 1.0L + 0x1p-40L;
	struct { size_t offset; void *operand; int type; } each[] = {
		{ offsetof(struct shared, plain), &one, FI_UINT64 },
		{ offsetof(struct shared, wide), &wide, FI_LONG_DOUBLE_COMPLEX },
		{ offsetof(struct shared, crooked), &crooked, FI_DOUBLE_COMPLEX },
		{ offsetof(struct shared, small), &small, FI_FLOAT_COMPLEX },
		{ offsetof(struct shared, extended), &extended, FI_LONG_DOUBLE },
	};
	CHECK(offsetof(struct shared, crooked) % 16 == 8 && offsetof(struct shared, small) % 8 == 4);
	char before[32];
	if (strcmp(argv[2], "doomed") == 0) {
		/* Another element under the same lock as `wide`, until the test kills this process. */
		size_t beside = offsetof(struct shared, wide) + 1024;
		for (;;) {
			ssize_t posted = fi_fetch_atomic(ep, &wide, 1, NULL, before, NULL, peer, beside, 1, FI_LONG_DOUBLE_COMPLEX,
				FI_SUM, NULL);
			if (posted != -FI_EAGAIN) {
				EXPECT(posted, 0);
				next(txcq);
			}
		}
	}
	for (int turn = 0; turn < TURNS; turn++) {
		/* Long enough that the test kills other processes during it. */
		usleep(200);
		for (int i = 0; i < 5; i++) {
			ssize_t posted;
			while ((posted = fi_fetch_atomic(ep, each[i].operand, 1, NULL, before, NULL, peer, each[i].offset, 1,
					each[i].type, FI_SUM, NULL)) == -FI_EAGAIN)
				;
			EXPECT(posted, 0);
			next(txcq);
		}
	}
	char label[20];
	snprintf(label, sizeof label, "done%d", me);
	show(label, "", 1);
	if (me == 0) {
		for (int i = 1; i < all; i++) {
			snprintf(label, sizeof label, "done%d", i);
			see(label, before, 1);
		}
		int sum = TURNS * all;
		CHECK(shared->plain == (uint64_t) sum);
		CHECK(shared->wide == sum * wide && shared->crooked == sum * crooked && shared->small == sum * small);
		CHECK(shared->extended == sum * extended);
		EXPECT(fi_close(&mr->fid), 0);
	}
	close_all();
	return 0;
}
